// A hand-written stub of the header that Xcode generates from Sources/Client/LongwireClient/ObjectiveC. Keep them consistent.
@import Foundation;
@import UserNotifications;
@class LWClient, LWMessage;
@interface LWConfiguration : NSObject
- (instancetype)initWithHost:(NSString *)host
                        port:(uint16_t)port
                       appID:(NSString *)appID
                   appSecret:(NSString *)appSecret
                   statePath:(NSString *)statePath;
@property BOOL usesTLS;
@property NSString *registrationToken;
@end
@protocol LWClientDelegate <NSObject>
- (void)longwireClient:(LWClient *)client didReceiveMessage:(LWMessage *)message;
@optional
- (void)longwireClient:(LWClient *)client didConnectWithClientID:(NSString *)clientID;
- (void)longwireClient:(LWClient *)client didDisconnectWithReason:(NSString *)reason;
- (void)longwireClient:(LWClient *)client didRevokeTask:(NSString *)taskID;
- (void)longwireClient:(LWClient *)client didSendPayload:(NSData *)payload refusal:(NSString *)refusal;
- (void)longwireClient:(LWClient *)client didStopWithError:(NSError *)error;
@end
@interface LWMessage : NSObject
@property(readonly) NSString *messageID;
@property(readonly) NSString *taskID;
@property(readonly) NSData *payload;
@property(readonly) BOOL isOffline;
@property(readonly) BOOL isNew;
@property(readonly) BOOL wasAlerted;
@property(readonly) BOOL wasOpened;
@property(readonly) NSString *alertTitle;
@property(readonly) NSString *alertBody;
@property(readonly) NSDictionary *notificationUserInfo;
@property(readonly) UNNotificationRequest *notificationRequest;
@end
@interface LWNotification : NSObject
- (instancetype)initWithUserInfo:(NSDictionary *)userInfo;
@property(readonly) NSString *messageID;
@property(readonly) NSString *taskID;
@property(readonly) NSString *payload;
@property(readonly) NSString *url;
@property(readonly) NSString *jumpClassName;
@property(readonly) NSDictionary *jumpProperties;
@property(readonly) NSDictionary *extras;
@property(readonly) NSDictionary *userInfo;
@property(readonly) BOOL isSilent;
@property(readonly) BOOL isLocal;
@end
@interface LWClient : NSObject
@property(weak) id<LWClientDelegate> delegate;
- (instancetype)initWithConfiguration:(LWConfiguration *)configuration;
- (BOOL)startAndReturnError:(NSError **)error;
- (void)stop;
- (void)applicationDidBecomeActive;
- (void)applicationDidEnterBackground;
- (void)applicationWillTerminate;
- (BOOL)setDeviceToken:(NSData *)token topic:(NSString *)topic error:(NSError **)error;
- (void)setBadge:(int32_t)badge keepsNotifications:(BOOL)keepsNotifications;
- (void)setPushModeOff:(BOOL)isOff;
- (LWNotification *)handleTap:(UNNotificationResponse *)response;
- (void)keepTap:(UNNotificationResponse *)response;
- (NSArray<LWNotification *> *)takeTaps;
- (UNNotificationPresentationOptions)presentationOptionsForNotification:(UNNotification *)notification;
- (void)handleRemoteNotification:(NSDictionary *)userInfo completion:(void (^)(NSInteger result))completion;
- (void)reportShownInFile:(NSString *)path;
- (void)reportShown:(LWMessage *)message;
- (BOOL)reportAction:(uint32_t)number ofMessageID:(NSString *)messageID;
- (BOOL)sendPayload:(NSData *)payload;
- (void)setRegistrationToken:(NSString *)token;
- (void)bindAlias:(NSString *)alias type:(NSString *)type completion:(void (^)(NSError *error))completion;
- (void)bindAliasWithToken:(NSString *)token completion:(void (^)(NSError *error))completion;
- (void)unbindAlias:(NSString *)alias type:(NSString *)type completion:(void (^)(NSError *error))completion;
- (void)setTags:(NSArray<NSString *> *)tags completion:(void (^)(NSError *error))completion;
- (void)addTags:(NSArray<NSString *> *)tags completion:(void (^)(NSError *error))completion;
- (void)removeTags:(NSArray<NSString *> *)tags completion:(void (^)(NSError *error))completion;
- (void)ownNamesOfType:(NSString *)type
            completion:(void (^)(NSString *alias, NSArray<NSString *> *tags, NSError *error))completion;
@end
@interface LWServiceExtension : NSObject
+ (void)handleRequest:(UNNotificationRequest *)request
              gateway:(NSString *)gateway
            statePath:(NSString *)statePath
            shownPath:(NSString *)shownPath
           completion:(void (^)(UNNotificationContent *))completion;
@end
